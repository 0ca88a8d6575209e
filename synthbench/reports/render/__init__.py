"""Tables and figures as text: Markdown, LaTeX, CSV, pictures and the page."""
