"""What does a row of a table hold, when its noise is drawn only where it is read?"""
