"""What does each part of the report say?"""
