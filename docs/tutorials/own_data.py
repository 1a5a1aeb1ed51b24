# %% [markdown]
# # own_data
