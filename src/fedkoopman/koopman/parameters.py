"""scikit-learn's manners for an estimator, without scikit-learn."""

import inspect
from importlib import import_module
from typing import Any, Self

from fedkoopman.errors import InputError, unknown_name

__all__ = ["NotFittedError", "Parameters"]


class NotFittedError(InputError, AttributeError):
    """A fitted value was asked for before `fit`; an AttributeError, so that `hasattr` says no."""


class Parameters:
    """An estimator's parameters are its constructor's arguments, stored as they were given.

    With this, `sklearn.base.clone`, pipelines and searches take the estimator for one of theirs.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {
            name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; there are no estimators inside, so `deep` changes nothing."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; they are checked when next used."""
        known = self._defaults()
        for name in parameters:
            if name not in known:
                raise unknown_name(f"parameter of {type(self).__name__}", name, known)
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        given = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        utils = import_module("sklearn.utils")  # only scikit-learn asks for these
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(two_d_array=True, three_d_array=True),
        )
