"""The fourteen findings of a phantom: each changes the patient's build or is drawn into the lungs.

Every finding has a random severity (0 hardly visible to 1 plain), place and side, so that none of them is
recognised by its side alone and each has images in which it is nearly invisible.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cxrbench.datasets.phantom_scene import Build, Rng, Scene, line, ramp


def severity(rng: Rng) -> float:
    """0.05 to 1, a little more often severe than slight."""
    return 0.05 + 0.95 * rng.random() ** 0.9


def _sides(rng: Rng, both: float) -> tuple[int, ...]:
    """Both sides with that probability, otherwise either."""
    return (0, 1) if rng.random() < both else (int(rng.integers(2)),)


def reshape(build: Build, finding: str, rng: Rng, s: float) -> None:
    """Change the build of a patient with this finding."""
    if finding == "Cardiomegaly":
        build.heart *= 1.08 + 0.34 * s
    elif finding == "Emphysema":
        build.stretch = [k * (1.02 + 0.10 * s) for k in build.stretch]
        build.flatten += 0.05 + 0.15 * s
        build.air *= 1.05 + 0.22 * s
        build.heart *= 0.97 - 0.10 * s
        build.vessels *= 0.8 - 0.5 * s
    elif finding == "Atelectasis":  # it loses volume
        side = int(rng.integers(2))
        build.stretch[side] *= 0.97 - 0.15 * s
        build.shift += (2 * side - 1) * 0.10 * s


def _atelectasis(scene: Scene, rng: Rng, s: float) -> None:
    """Plates across the lower zone or a wedge below the hilum, on the side that lost volume."""
    side = int(scene.build.stretch[0] > scene.build.stretch[1])
    sign = 2 * side - 1
    if rng.random() < 0.6:
        for _ in range(rng.integers(1, 4)):
            u, y = scene.spot(side, rng.uniform(0.35, 0.6), rng.uniform(0.55, 0.85))
            plate = scene.blob(
                (u, y), rng.uniform(0.3, 0.45), rng.uniform(0.06, 0.09), sign * rng.uniform(-0.5, 0.3)
            )
            scene.opacity += plate * (0.35 + 0.75 * s)
    else:
        u, y = scene.spot(side, 0.15, 0.5)
        down = scene.y - y
        width = 0.08 + rng.uniform(0.35, 0.6) * down
        wedge = ramp(width - (scene.u - u) * sign, 0.1) * ramp(down, 0.2) * scene.side(side)
        scene.opacity += wedge * (0.25 + 0.6 * s)


def _effusion(scene: Scene, rng: Rng, s: float) -> None:
    """Fluid in the costophrenic angle, its upper border rising towards the chest wall."""
    lungs = scene.build.lungs
    for side in _sides(rng, 0.3):
        depth = 0.04 + (0.75 if rng.random() < 0.25 else 0.38) * s
        bottom = float(lungs.bottom[side]) * scene.build.stretch[side]
        rise = (0.25 + 0.2 * s) * np.square(np.clip(scene.across, 0, 1.1) - 0.35)
        level = (bottom - 0.12 - depth * lungs.height * 0.5) - rise
        fluid = ramp(scene.y - level, 0.14) * scene.side(side)
        scene.opacity += fluid * (0.8 + 0.3 * s)
        scene.vessels *= 1 - fluid


def _infiltration(scene: Scene, rng: Rng, s: float) -> None:
    """Ill-defined patches over one or both lungs."""
    patchy = np.clip(scene.cut("clouds", rng) + 0.6 * scene.cut("wisps", rng) + 0.3, 0, 1.2)
    for side in _sides(rng, 0.6):
        at = scene.spot(side, rng.uniform(0.3, 0.6), rng.uniform(0.4, 0.7))
        scene.opacity += patchy * scene.blob(at, 0.75, 0.95) * (0.25 + 0.65 * s)


def _mass(scene: Scene, rng: Rng, s: float) -> None:
    """A large round shadow, sometimes two."""
    _spots(scene, rng, 1 + (rng.random() < 0.25), (0.15, 0.27), 0.35 + 0.6 * s)


def _nodule(scene: Scene, rng: Rng, s: float) -> None:
    """One to four small round shadows."""
    _spots(scene, rng, rng.choice([1, 2, 4], p=[0.4, 0.3, 0.3]), (0.06, 0.10), 0.5 + 0.9 * s)


def _spots(scene: Scene, rng: Rng, count: int, radii: tuple[float, float], density: float) -> None:
    for _ in range(count):
        radius, side = rng.uniform(*radii), int(rng.integers(2))
        at = scene.spot(side, rng.uniform(0.25, 0.85), rng.uniform(0.15, 0.75))
        scene.opacity += scene.disc(at, radius, edge=0.05 + 0.2 * radius) * density


def _pneumonia(scene: Scene, rng: Rng, s: float) -> None:
    """A patch that fills part of a lobe and ends sharply at its fissure."""
    for side in _sides(rng, 0.25):
        down = rng.uniform(0.35, 0.75)
        at = scene.spot(side, rng.uniform(0.35, 0.6), down)
        patch = np.sqrt(scene.blob(at, 0.5, 0.5, rng.uniform(-0.6, 0.6)))
        fissure = scene.y - at[1] + 0.2 * (2 * side - 1) * (scene.u - at[0])
        upper = 1 if rng.random() < 0.5 else -1
        patch *= ramp(fissure * upper + 0.12, 0.1) * (1 + 0.35 * scene.cut("wisps", rng))
        scene.opacity += patch * (0.35 + 0.75 * s)


def _pneumothorax(scene: Scene, rng: Rng, s: float) -> None:
    """Black, empty crescent above and beside a collapsed lung, which a thin white line borders."""
    side = int(rng.integers(2))
    lungs = scene.build.lungs
    top, height = float(lungs.top[side]), lungs.height
    extent = 0.45 + 0.55 * s
    fade = np.clip(1 - (scene.y - top) / (extent * height), 0, 1)
    lateral = np.clip(scene.across * 2.2 - 0.35, 0, 1)
    border = (0.06 + 0.32 * s) * fade * lateral
    gap = scene.depth - border
    here = scene.side(side) * (border > 0.03)
    outside = ramp(-gap, 0.05) * here
    scene.vessels *= 1 - outside
    scene.opacity -= outside * (0.12 + 0.35 * s)
    scene.opacity += scene.side(side) * ramp(gap, 0.3) * (0.15 * s)
    scene.extra += line(gap, 0.02 + 0.8 / scene.pixels) * here * scene.lung * (0.03 + 0.07 * s)


def _consolidation(scene: Scene, rng: Rng, s: float) -> None:
    """A dense patch with a ragged border and dark bronchi in it."""
    for side in _sides(rng, 0.3):
        at = scene.spot(side, rng.uniform(0.25, 0.75), rng.uniform(0.3, 0.8))
        patch = scene.blob(at, rng.uniform(0.35, 0.6), rng.uniform(0.3, 0.55), rng.uniform(-0.8, 0.8))
        ragged = ramp(patch + 0.35 * scene.cut("clouds", rng) * patch - 0.3, 0.35)
        scene.opacity += ragged * (0.4 + 0.6 * s) * (1 - 0.3 * scene.cut("net", rng))


def _edema(scene: Scene, rng: Rng, s: float) -> None:
    """Haze around both hila, with full vessels."""
    haze = sum(scene.blob(scene.spot(side, 0.28, 0.5), 0.75, 0.85) for side in (0, 1))
    scene.opacity += haze * (1 + 0.5 * scene.cut("wisps", rng)) * (0.06 + 0.42 * s)
    scene.vessels *= 1 + 0.5 * s


def _fibrosis(scene: Scene, rng: Rng, s: float) -> None:
    """A net of lines at both bases, densest below the pleura."""
    net = scene.cut("net", rng)
    low = np.clip((scene.y / scene.build.lungs.height - 0.35) * 2.5, 0, 1)
    near_pleura = np.clip(1.3 - 2.0 * scene.depth, 0.35, 1)
    scene.opacity += low * near_pleura * (0.35 + 0.9 * net) * (0.2 + 0.6 * s)


def _pleural_thickening(scene: Scene, rng: Rng, s: float) -> None:
    """A bright rim along part of the lateral chest wall."""
    for side in _sides(rng, 0.4):
        middle = scene.spot(side, 1.0, rng.uniform(0.25, 0.75))[1]
        reach = rng.uniform(0.4, 0.8)
        thick = (0.07 + 0.12 * s) * (1 + 0.4 * scene.cut("clouds", rng))
        along = np.sqrt(np.maximum(1 - np.square((scene.y - middle) / reach), 0))
        lateral = scene.side(side) * ramp(scene.across - 0.4, 0.2)
        rim = ramp(thick * along - scene.depth, 0.05) * (along > 0) * lateral
        scene.opacity += rim * (0.6 + 0.4 * s)


def _hernia(scene: Scene, rng: Rng, s: float) -> None:
    """A round pouch of stomach behind the heart: a bright wall, often with gas above a fluid level."""
    sign = 1 if rng.random() < 0.6 else -1
    lungs = scene.build.lungs
    at = (sign * rng.uniform(0.08, 0.24), lungs.height * rng.uniform(0.76, 0.86))
    radius = 0.18 + 0.13 * s
    pouch = scene.disc(at, radius)
    scene.extra += pouch * (0.05 + 0.08 * s)
    if rng.random() < 0.8:
        gas = scene.disc((at[0], at[1] - 0.02), 0.72 * radius) * ramp((at[1] + 0.02) - scene.y, 0.05)
        scene.extra -= gas * (0.14 + 0.20 * s)


DRAWN: dict[str, Callable[[Scene, Rng, float], None]] = {
    "Atelectasis": _atelectasis,
    "Effusion": _effusion,
    "Infiltration": _infiltration,
    "Mass": _mass,
    "Nodule": _nodule,
    "Pneumonia": _pneumonia,
    "Pneumothorax": _pneumothorax,
    "Consolidation": _consolidation,
    "Edema": _edema,
    "Fibrosis": _fibrosis,
    "Pleural_Thickening": _pleural_thickening,
    "Hernia": _hernia,
}
