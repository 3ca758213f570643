"""In which form is a gradient held?"""
