# %% [markdown]
# # extend
