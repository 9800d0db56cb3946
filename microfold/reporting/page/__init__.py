"""HTML page of a report: `page` collects and renders it, the other modules compute its parts."""
