"""Parts of the page: pictures as SVG, their data for the script, sections and cards, templates."""
