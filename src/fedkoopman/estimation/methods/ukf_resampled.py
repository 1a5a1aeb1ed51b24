"""The unscented Kalman filter with new sigma points for the correction: it is consistent."""

from fedkoopman.estimation.methods.ukf import SigmaPoints

ESTIMATOR = SigmaPoints(consistent=True)
