"""The report as one HTML file: `page` collects and renders, the other modules compute its parts."""
