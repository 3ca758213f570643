"""How is the report shown: the document, and its forms as HTML, Markdown and JSON?"""
