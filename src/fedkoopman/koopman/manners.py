"""scikit-learn's manners: parameters, tags and outputs as its tools expect them.

scikit-learn itself is not needed.
"""

import inspect
import sys
from importlib import import_module
from typing import Any, Self

from fedkoopman.errors import unknown_name

OUTPUTS = ("default", "pandas")
"""What `transform` may return."""


class Manners:
    """An estimator's parameters are its constructor's arguments, stored as they were given.

    With this, `sklearn.base.clone`, pipelines and searches take it for one of theirs.
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

    def __sklearn_tags__(self) -> Any:
        utils = import_module("sklearn.utils")  # only scikit-learn asks for these
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(two_d_array=True, three_d_array=True),
        )

    def set_output(self, *, transform: str | None = None) -> Self:
        """Say what `transform` returns: "default", as X came, or "pandas", DataFrames for arrays
        too; None changes nothing."""
        if transform not in (None, *OUTPUTS):
            raise unknown_name("output of transform", transform, OUTPUTS)
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # which `clone` copies
        return self

    @property
    def _wants_pandas(self) -> bool:
        """Whether arrays are to become DataFrames, by `set_output` or scikit-learn's settings."""
        asked: str = getattr(self, "_sklearn_output_config", {}).get("transform", "")
        if not asked and "sklearn" in sys.modules:
            asked = sys.modules["sklearn"].get_config()["transform_output"]
            if asked not in OUTPUTS:
                raise unknown_name("output of transform", asked, OUTPUTS)
        return asked == "pandas"
