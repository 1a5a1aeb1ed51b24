"""What a reader of the ships' part has to know, in words."""

from collections.abc import Sequence

from accuracy_page import short

INTRO = """MARIN (2007, six manoeuvres, numbers of the full-scale ship, three digits, 50 Hz) and \
HSVA (2006, thirteen, model scale, 20 Hz) let the same 7 m model of the tanker KVLCC2 manoeuvre \
freely. Here they are two sites of one federation: `fk.run` on a study with two site files, each \
with the CSV, the column names and the units of its laboratory. The shared model has speed ahead \
u, sway v and yaw rate r as its state and the rudder angle δ as its input; no equation of the \
ship is given.

`measured_ships_data.py` makes the CSV files: velocities along the ship from Earth-fixed ones, \
times from row numbers and r without its offset at MARIN, the last 100 rows of MARIN's circles \
left out, and means over 0.5 s of the model (δ: from each row to the next). Froude's law is the \
`scale` of MARIN's site file. Whole manoeuvres are held out: MARIN's zig-zag 20 and circle 35 \
(first to port), HSVA's zig-zags 15/5 and 20/10 (first to starboard). The error is that of \
simulating a whole manoeuvre, 89 to 304 s, from its first state and the recorded rudder: root \
mean square over time and (u, v, r), each in standard deviations over the manoeuvres that are \
learned from (the same for all models), root mean square over manoeuvres.

Every setting was chosen on manoeuvres that are learned from, leaving out three times one zig-zag \
of MARIN and three of HSVA: degree 1, 2 or 3, linear or bilinear in δ, ridge 1e-9 or 1e-6. The \
federation chose by both laboratories' left-out zig-zags, a laboratory alone by its own. Goals \
are judged against the better of two rows of a laboratory alone, with its own choice and with the \
federation's. The circle is extrapolation: only MARIN has one to learn from, to the other side, \
and no zig-zag is as slow.

Data: SIMMAN 2008 (F. Stern, K. Agdrup, S. Y. Kim, A. Cura Hochbaum et al., J. Ship Res. 55 \
(2011) 135–147), MARIN and HSVA; files of M. Alexandersson, W. Mao, J. W. Ringsberg, Ocean Eng. \
266 (2022) 112940."""

RECORDED = """*Pooled* is what one would do with all rows in one place: the federation's sums give \
the same model. Peers get all rows in one place too, standardised."""

MIRRORED = """Every laboratory adds to its recordings the mirror image of each (v, r and δ with \
the other sign), as if port and starboard did not differ; the held-out manoeuvres' own images are \
not among them. This is knowledge from outside, which left-out zig-zags cannot judge: they like \
it less. It is what a circle to the other side needs."""

KINDS = """Ridge 1e-6 for EDMD, which is lifted anew at every step. `spectral`: 20 components, \
degree 3, 16 features per layer, horizon 5, 100 slots, lifted anew as often as it decides itself; \
it was not tuned further. Errors one step ahead (0.5 s) say little about a whole manoeuvre: \
compare the last column with HSVA's."""


def reason(seen: object, rows: Sequence[Sequence[object]]) -> str:
    """Why MARIN's zig-zag is not twice as good as with HSVA's model, from the numbers."""
    assert isinstance(seen, float)
    alone = min(float(str(row[2])) for row in rows if "HSVA alone" in str(row[0]))
    return (
        "*Left-out manoeuvres*: the error by which settings are chosen, geometric mean of both "
        "laboratories' zig-zags. Rows without `fk.run` are by the same least squares in NumPy "
        "(`measured_ships_choice.py`), as the package has no weights of sites. Neither weights nor "
        "another ridge, nor a smoother at MARIN, changes MARIN's zig-zag by much. Nor could they: "
        f"even a shared model that has learned from the test manoeuvres as well is off by "
        f"{short(seen)} there, and half of what HSVA's model reaches without any of MARIN's data "
        f"is {short(alone / 2)}. The two laboratories' ships differ by more than that: MARIN's "
        "propeller turned 1 % faster (10.33 and 10.23 per second), its rudder rests at −1.2 to "
        "+0.2°, and after the first turn its ship is up to 0.05 m/s faster than HSVA's model "
        "expects. One map of this kind cannot be both."
    )
