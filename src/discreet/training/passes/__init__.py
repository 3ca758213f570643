"""What did the model do with its weights?"""
