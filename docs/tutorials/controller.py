# %% [markdown]
# # controller
