"""What can a pass change that lasts, and how is it put back?"""
