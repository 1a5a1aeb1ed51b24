# %% [markdown]
# # reproduce_a_figure
