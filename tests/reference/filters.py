"""Textbook twins, in plain NumPy, written from the formulas and not from our code.

Unscented filter and smoother with the literal weights W_0 … W_2n of eq. (5) (no centring, no
Joseph form), the exact linear Kalman filter and Rauch-Tung-Striebel smoother, and the extended
filter with Jacobians by central differences.
"""

import numpy as np


def sigma_points(x, p, alpha, beta, kappa):
    n = len(x)
    lam = alpha**2 * (n + kappa) - n
    root = np.linalg.cholesky((n + lam) * p)
    points = np.vstack([x, x + root.T, x - root.T])
    wm = np.full(2 * n + 1, 1 / (2 * (n + lam)))
    wc = wm.copy()
    wm[0] = lam / (n + lam)
    wc[0] = wm[0] + 1 - alpha**2 + beta
    return points, wm, wc


def ukf(f, h, z, q, r, x, p, alpha=0.1, beta=2.0, kappa=-1.0, resample=False):
    """Algorithm 1. Returns filtered means and covariances for times 0 … T and log p(z)."""
    means, covs, log_likelihood = [x], [p], 0.0
    for k, zk in enumerate(z):
        qk = q[k] if q.ndim == 3 else q
        rk = r[k] if r.ndim == 3 else r
        points, wm, wc = sigma_points(x, p, alpha, beta, kappa)
        points = np.array([f(point) for point in points])
        x_pred = wm @ points
        p_pred = (wc[:, None] * (points - x_pred)).T @ (points - x_pred) + qk
        if resample:
            points, wm, wc = sigma_points(x_pred, p_pred, alpha, beta, kappa)
        seen = ~np.isnan(zk)
        if not seen.any():
            x, p = x_pred, p_pred
        else:
            zs = np.array([h(point) for point in points])[:, seen]
            z_pred = wm @ zs
            s = (wc[:, None] * (zs - z_pred)).T @ (zs - z_pred) + rk[np.ix_(seen, seen)]
            cross = (wc[:, None] * (points - x_pred)).T @ (zs - z_pred)
            gain = cross @ np.linalg.inv(s)
            v = zk[seen] - z_pred
            x = x_pred + gain @ v
            p = p_pred - gain @ s @ gain.T
            log_likelihood += log_normal(v, s)
        p = (p + p.T) / 2
        means.append(x)
        covs.append(p)
    return np.array(means), np.array(covs), log_likelihood


def urts(f, means, covs, q, alpha=0.1, beta=2.0, kappa=-1.0):
    """Algorithm 2 on filtered means and covariances for times 0 … T."""
    xs, ps = means.copy(), covs.copy()
    for k in range(len(means) - 2, -1, -1):
        qk = q[k] if q.ndim == 3 else q
        points, wm, wc = sigma_points(means[k], covs[k], alpha, beta, kappa)
        ahead = np.array([f(point) for point in points])
        x_ahead = wm @ ahead
        p_ahead = (wc[:, None] * (ahead - x_ahead)).T @ (ahead - x_ahead) + qk
        cross = (wc[:, None] * (points - means[k])).T @ (ahead - x_ahead)
        gain = cross @ np.linalg.inv(p_ahead)
        xs[k] = means[k] + gain @ (xs[k + 1] - x_ahead)
        ps[k] = covs[k] + gain @ (ps[k + 1] - p_ahead) @ gain.T
    return xs, ps


def log_normal(v, s):
    return -0.5 * (len(v) * np.log(2 * np.pi) + np.linalg.slogdet(s)[1] + v @ np.linalg.solve(s, v))


def linearised(f, h, z, q, r, x, p, jacobian_f, jacobian_h):
    """Extended Kalman filter and smoother; with the exact constant Jacobians of a linear model it
    is the Kalman filter and the Rauch-Tung-Striebel smoother."""
    means, covs, preds, pred_covs, slopes, log_likelihood = [x], [p], [], [], [], 0.0
    for zk in z:
        a = jacobian_f(x)
        x_pred, p_pred = f(x), a @ p @ a.T + q
        preds.append(x_pred)
        pred_covs.append(p_pred)
        slopes.append(a)
        seen = ~np.isnan(zk)
        c = jacobian_h(x_pred)[seen]
        s = c @ p_pred @ c.T + r[np.ix_(seen, seen)]
        gain = p_pred @ c.T @ np.linalg.inv(s)
        v = (zk - h(x_pred))[seen]
        x, p = x_pred + gain @ v, p_pred - gain @ s @ gain.T
        if seen.any():
            log_likelihood += log_normal(v, s)
        means.append(x)
        covs.append(p)
    xs, ps = np.array(means), np.array(covs)
    for k in range(len(z) - 1, -1, -1):
        gain = covs[k] @ slopes[k].T @ np.linalg.inv(pred_covs[k])
        xs[k] = means[k] + gain @ (xs[k + 1] - preds[k])
        ps[k] = covs[k] + gain @ (ps[k + 1] - pred_covs[k]) @ gain.T
    return np.array(means), np.array(covs), xs, ps, log_likelihood


def central_jacobian(g, step=1e-5):
    def jacobian(x):
        columns = [(g(x + step * e) - g(x - step * e)) / (2 * step) for e in np.eye(len(x))]
        return np.stack(columns, axis=-1)

    return jacobian
