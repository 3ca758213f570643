"""How do rows become bytes, get to disk, and come back?"""
