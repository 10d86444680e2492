"""The programs that make parts of the site: `python -m docs.generate`, `docs.picture`, `docs.diagram`, `docs.chart`,
`docs.scale_chart`."""
