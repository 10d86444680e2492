"""Matrix products and convolutions: plans, packing, tiles and their drivers."""
