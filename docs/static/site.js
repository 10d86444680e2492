// Scrolls the list of pages to the current one, which may be far down in a long section.
addEventListener("load", () => {
  const list = document.querySelector(".sidebar-scroll");
  const current = document.querySelector(".sidebar-tree .current-page");
  if (!list || !current) return;
  const [outer, inner] = [list.getBoundingClientRect(), current.getBoundingClientRect()];
  list.scrollTo({ top: list.scrollTop + inner.top - outer.top - outer.height / 2, behavior: "instant" });
});
