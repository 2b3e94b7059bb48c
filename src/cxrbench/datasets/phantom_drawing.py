"""Drawing of a phantom: a radiograph-like frontal chest image of a row of NIH's table.

Each finding is drawn from its own random stream: leaving it out changes nothing else. Its severity ``s``
(0 hardly visible to 1 plain), place and side are random, so that none is recognised by its side alone.
"""

from itertools import product
from typing import Any

import numpy as np

from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.phantom_scene import Build, Rng, Scene, length, line, ramp, sample, stream, wave

# The heart from the great vessels down: heights of the lungs, and |u| of its borders there.
HEART_HEIGHTS = (0.25, 0.38, 0.46, 0.58, 0.7, 0.8, 0.88, 0.95, 1.02)
HEART_LEFT = (0.05, 0.17, 0.25, 0.34, 0.45, 0.525, 0.54, 0.50, 0.36)
HEART_RIGHT = (0.03, 0.12, 0.17, 0.24, 0.275, 0.265, 0.22, 0.13, 0.08)
TRUNK_HEIGHTS = (-0.6, -0.26, -0.17, -0.07, 0.02, 0.12, 0.3, 0.55, 0.8, 1.1, 1.5)


def draw_row(row: dict[Any, Any], pixels: int, seed: int) -> np.ndarray:
    """Draw the phantom of a row of NIH's table, (pixels, pixels) uint8."""
    rng, ap = stream(seed, row["image"]), row["view"] == "AP"
    build = Build(row, seed, rng, ap)
    streams = {name: stream(seed, row["image"], name) for name in FINDINGS if row[name]}
    drawn = [(name, own, 0.05 + 0.95 * own.random() ** 0.9) for name, own in streams.items()]
    for finding in drawn:
        _reshape(build, *finding)
    scene = Scene(build, pixels, rng, ap)
    for finding, draw in product(drawn, (_patches, _shadows, _pleura)):
        draw(scene, *finding)
    return _film(_body(scene), scene)


def _body(scene: Scene) -> np.ndarray:
    """Brightness of the whole patient."""
    light, inside = _trunk(scene)
    air = scene.lung * np.maximum(1 - scene.opacity, -0.1)
    centre, heart = _mediastinum(scene)
    hollow = 0.37 * scene.build.air * (0.72 + 0.5 * np.clip(scene.depth, 0, 0.55))
    light -= hollow * air * (1 - 0.72 * heart) * (1 - 0.85 * centre)
    light += (0.07 * heart + 0.09 * centre) * (1 - 0.5 * ramp(scene.v - 0.9, 0.3))
    light += _vessels(scene) * air * (1 - 0.7 * heart)
    for part in (_bones(scene), _below(scene), scene.extra):
        light += part * inside
    if scene.ap or scene.rng.random() < 0.08:
        light += _lines(scene)
    return light


def _trunk(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Soft tissue of neck, shoulders, trunk and arms: brightness, and 1 inside the patient to 0 outside."""
    a, v, chest = scene.across, scene.v, 1.12 + 0.12 * scene.build.fat
    widths = (0.40, 0.43, 0.62, 1.15, 1.42, 1.55, 1.40, chest + 0.07, chest, chest + 0.04, chest + 0.12)
    half = np.interp(v[:, :1], TRUNK_HEIGHTS, widths).astype("f4")  # rotation is small: one width per row
    inside = ramp(half - a, 0.10)
    light = inside * (0.22 + 0.04 * scene.build.fat + 0.36 * np.sqrt(np.maximum(1 - np.square(a / half), 0)))
    if scene.build.arms:
        lean = 1.42 + 0.16 * v
        arm = ramp(0.25 - np.abs(a - lean), 0.12) * ramp(v - 0.12, 0.2)
        light += arm * (1 - inside) * 0.36 + line(a - lean, 0.1) * arm * 0.14
        inside = np.maximum(inside, arm)
    return light, inside


def _mediastinum(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """How much the great vessels with the spine, and the heart, cover of each pixel (0 to 1)."""
    build, v = scene.build, scene.v
    u = scene.u - build.shift * np.clip(v * 3, 0, 1)  # the neck stays where it is
    wide = 0.15 + 0.05 * np.clip(0.5 - v, 0, 0.5) + 0.08 * ramp(v - 0.36, 0.3)
    knob = scene.disc((build.shift + 0.17, 0.24 * build.lungs.height), 0.13 * build.heart**0.5)
    centre = np.maximum(ramp(wide - np.abs(u), 0.09), knob * 0.8)
    scale, soft = sum(build.stretch) / 2, 0.06 + 1.5 / scene.pixels
    size = np.interp(v[:, :1], (0.35, 0.65), (1, build.heart))
    borders = (np.interp(v[:, :1] / scale, HEART_HEIGHTS, x) * size for x in (HEART_RIGHT, HEART_LEFT))
    right, left = (border.astype("f4") for border in borders)
    return centre, ramp(u + right, soft) * ramp(left - u, soft) * ramp(1.02 * scale - v, 0.1)


def _vessels(scene: Scene) -> np.ndarray:
    """Hila and the branches that run from them, thinning towards the pleura."""
    rng, away, down = scene.rng, scene.across - 0.2, scene.y - 0.47 * scene.build.lungs.height
    radius = length(away, down)
    turn = down / (np.abs(away) + np.abs(down) + 1e-6)  # in place of an angle, and cheaper
    turn = np.clip(turn + 0.1 * scene.cut("clouds", rng), -1, 1)  # branches bend
    tile, half = scene.textures["vessels"], 510  # of its rows and columns, but for an edge
    rows = (turn + 1) * (half / 2) + scene.by_side(*rng.integers(half, size=2))
    branch = sample(tile, rows, np.minimum(radius * 150, half) + np.float32(rng.integers(half)))
    fade = np.clip(1 - radius, 0.04, 1) * np.clip(radius * 4, 0.2, 1)
    hila = line(length(away, down * 0.55), 0.26)
    seen = (0.14 * scene.build.vessels) * branch * fade * scene.vessels
    return seen + 0.16 * hila * (0.55 + 0.6 * scene.vessels * branch)


def _bones(scene: Scene) -> np.ndarray:
    """Ribs, clavicles, spine and the heads of the arms."""
    a, v = scene.across, scene.v
    offset, spacing, slope = scene.build.ribs
    behind = v + 0.14 * a - slope * a * a
    before = v - 0.30 + 0.42 * a * a
    ribs = np.clip(1.6 * wave(behind * (1 / spacing) + offset), -0.5, 1)
    ribs += 0.4 * np.maximum(wave(before * (1 / spacing * 0.9)), 0) * np.clip(a * 2 - 0.8, 0, 1)
    light = 0.042 * ribs * ramp(scene.depth + 0.05, 0.10) * np.clip(a * 5 - 0.6, 0, 1)
    course = v - scene.build.clavicle + 0.17 * a - 0.27 * a * (1 - a) * (1 - 0.6 * a)
    bone = ramp(0.024 - np.abs(course), 0.025) + line(np.abs(course) - 0.022, 0.012)
    light += 0.065 * bone * ramp(1.15 - a, 0.1) * ramp(a - 0.12, 0.06)
    light += 0.07 * ramp(0.11 - a, 0.06) * (0.75 + 0.25 * wave(v[:, :1] * (1 / 0.085)))  # spine
    light -= 0.10 * ramp(0.055 - a, 0.05) * ramp(0.33 - v, 0.08)  # trachea
    light += 0.06 * ramp(0.15 - length(a - 1.3, scene.y - 0.2), 0.10)  # shoulder
    return light + 0.05 * ramp(0.48 - length(a - 1.42, (scene.y - 0.5) * 0.8), 0.06) * ramp(0.62 - v, 0.4)


def _below(scene: Scene) -> np.ndarray:
    """Belly, breasts, and gas in the stomach."""
    a, build, rng, h = scene.across, scene.build, scene.rng, scene.build.lungs.height
    light = 0.20 * ramp(scene.v - 0.88, 0.4) * ramp(1.12 + 0.12 * build.fat - a, 0.5)
    if build.breasts:
        light += build.breasts * ramp(0.48 - length(a - 0.62, (scene.y - 0.78 * h) * 1.1), 0.22)
    gas, at = rng.random(), (rng.uniform(0.35, 0.6), h * rng.uniform(1.02, 1.1))
    if gas < 0.45:
        light -= scene.blob(at, 0.25, 0.13) * (0.4 * gas + 0.06) * (1 - scene.lung)
    return light


def _lines(scene: Scene) -> np.ndarray:
    """Tubes and wires of a patient in bed: airway tube, central line, leads on the skin."""
    rng, v, width = scene.rng, scene.v, 0.014 + 0.8 / (scene.pixels * 0.36)
    light = np.zeros_like(v)
    if rng.random() < 0.35:
        light += line(scene.u - rng.normal(0, 0.02), width) * ramp(0.3 - v, 0.03)
    if rng.random() < 0.4:
        side = 2 * int(rng.integers(2)) - 1
        course = side * (0.12 + 0.5 * np.square(np.clip(0.3 - v, 0, 1)) * rng.uniform(2, 6))
        light += line(scene.u - course, width) * ramp(rng.uniform(0.4, 0.55) - v, 0.03) * (v > -0.1)
    for _ in range(rng.integers(0, 3)):
        start, lean, bend = rng.uniform(-0.9, 0.9), rng.uniform(-0.6, 0.6), rng.uniform(-0.4, 0.4)
        course = start + lean * v + bend * v * v
        light += line(scene.u - course, width) * (v > rng.uniform(-0.3, 0.6)) * 0.8
    return light * (0.15 * min(1.0, (scene.pixels / 128) ** 0.5))


def _film(light: np.ndarray, scene: Scene) -> np.ndarray:
    """Exposure, scatter, noise, vignette, collimation and rounding to uint8."""
    rng, n = scene.rng, scene.pixels
    light += (0.035 if scene.ap else 0.02) * scene.cut("clouds", rng)
    light += 0.010 * scene.cut("wisps", rng)
    light = np.clip((light - 0.42) * rng.uniform(0.95, 1.25) + (0.45 + rng.uniform(-0.05, 0.06)), 0, None)
    light *= 1.03 - 0.05 * light  # shoulder of the film's curve
    light += scene.cut("grain", rng) * (0.012 * (1.4 if scene.ap else 1.0))
    axis = np.linspace(-1, 1, n, dtype="f4")
    light *= 1 - rng.uniform(0.04, 0.12) * np.square(axis)[:, None] - 0.06 * np.square(axis)[None, :]
    row, column, size = int(n * rng.uniform(0.04, 0.14)), int(n * rng.uniform(0.86, 0.92)), max(2, n // 26)
    stem = max(1, size // 4)  # of the lead letter L above the patient's left shoulder
    light[row : row + size, column : column + stem] += 0.35
    light[row + size - stem : row + size, column + stem : column + stem + size // 2] += 0.35
    edges = np.where(rng.random(4) < 0.3, rng.uniform(0, 0.05, 4), 0) * n  # that the beam did not reach
    top, bottom, left, right = edges.astype(int)
    for dark in (light[:top], light[n - bottom :], light[:, :left], light[:, n - right :]):
        dark *= 0.1
    return (np.clip(light, 0, 1) * 255 + 0.5).astype(np.uint8)


def _reshape(build: Build, finding: str, rng: Rng, s: float) -> None:
    """Change the build of a patient with this finding."""
    if finding == "Cardiomegaly":
        build.heart *= 1.08 + 0.34 * s
    elif finding == "Emphysema":
        build.stretch = [k * (1.02 + 0.10 * s) for k in build.stretch]
        build.flatten = 0.05 + 0.15 * s
        build.air *= 1.05 + 0.22 * s
        build.heart *= 0.97 - 0.10 * s
        build.vessels *= 0.8 - 0.5 * s
    elif finding == "Atelectasis":  # it loses volume
        side = int(rng.integers(2))
        build.stretch[side] *= 0.97 - 0.15 * s
        build.shift = (2 * side - 1) * 0.10 * s


def _sides(rng: Rng, both: float) -> tuple[int, ...]:
    """Both sides with that probability, otherwise either."""
    return (0, 1) if rng.random() < both else (int(rng.integers(2)),)


def _patches(scene: Scene, finding: str, rng: Rng, s: float) -> None:
    """Draw a finding that clouds parts of the lungs."""
    match finding:
        case "Infiltration":  # ill-defined patches over one or both lungs
            patchy = np.clip(scene.cut("clouds", rng) + 0.6 * scene.cut("wisps", rng) + 0.3, 0, 1.2)
            for side in _sides(rng, 0.6):
                at = scene.spot(side, rng.uniform(0.3, 0.6), rng.uniform(0.4, 0.7))
                scene.opacity += patchy * scene.blob(at, 0.75, 0.95) * (0.25 + 0.65 * s)
        case "Pneumonia":  # fills part of a lobe and ends sharply at its fissure
            for side in _sides(rng, 0.25):
                down = rng.uniform(0.35, 0.75)
                at = scene.spot(side, rng.uniform(0.35, 0.6), down)
                patch = np.sqrt(scene.blob(at, 0.5, 0.5, rng.uniform(-0.6, 0.6)))
                fissure = scene.y - at[1] + 0.2 * (2 * side - 1) * (scene.u - at[0])
                upper = 1 if rng.random() < 0.5 else -1
                patch *= ramp(fissure * upper + 0.12, 0.1) * (1 + 0.35 * scene.cut("wisps", rng))
                scene.opacity += patch * (0.35 + 0.75 * s)
        case "Consolidation":  # a dense patch with a ragged border and dark bronchi in it
            for side in _sides(rng, 0.3):
                at = scene.spot(side, rng.uniform(0.25, 0.75), rng.uniform(0.3, 0.8))
                patch = scene.blob(at, rng.uniform(0.35, 0.6), rng.uniform(0.3, 0.55), rng.uniform(-0.8, 0.8))
                ragged = ramp(patch + 0.35 * scene.cut("clouds", rng) * patch - 0.3, 0.35)
                scene.opacity += ragged * (0.4 + 0.6 * s) * (1 - 0.3 * scene.cut("net", rng))
        case "Edema":  # haze around both hila, with full vessels
            haze = sum(scene.blob(scene.spot(side, 0.28, 0.5), 0.75, 0.85) for side in (0, 1))
            scene.opacity += haze * (1 + 0.5 * scene.cut("wisps", rng)) * (0.06 + 0.42 * s)
            scene.vessels *= 1 + 0.5 * s
        case "Fibrosis":  # a net of lines at both bases, densest below the pleura
            low = np.clip((scene.v - 0.35) * 2.5, 0, 1)
            near_pleura = np.clip(1.3 - 2.0 * scene.depth, 0.35, 1)
            scene.opacity += low * near_pleura * (0.35 + 0.9 * scene.cut("net", rng)) * (0.2 + 0.6 * s)


def _shadows(scene: Scene, finding: str, rng: Rng, s: float) -> None:
    """Draw a finding with a shape of its own."""
    match finding:
        case "Mass":  # a large round shadow, sometimes two
            _spots(scene, rng, 1 + (rng.random() < 0.25), (0.15, 0.27), 0.35 + 0.6 * s)
        case "Nodule":  # one to four small round shadows
            _spots(scene, rng, rng.choice([1, 2, 4], p=[0.4, 0.3, 0.3]), (0.06, 0.10), 0.5 + 0.9 * s)
        case "Hernia":  # a round pouch of stomach behind the heart, often with gas above a fluid level
            sign = 1 if rng.random() < 0.6 else -1
            u, y = sign * rng.uniform(0.08, 0.24), scene.build.lungs.height * rng.uniform(0.76, 0.86)
            radius = 0.18 + 0.13 * s
            scene.extra += scene.disc((u, y), radius) * (0.05 + 0.08 * s)
            if rng.random() < 0.8:
                gas = scene.disc((u, y - 0.02), 0.72 * radius) * ramp((y + 0.02) - scene.y, 0.05)
                scene.extra -= gas * (0.14 + 0.20 * s)
        case "Atelectasis":  # plates across the lower zone or a wedge below the hilum, where volume was lost
            side = int(scene.build.stretch[0] > scene.build.stretch[1])
            sign = 2 * side - 1
            if rng.random() < 0.6:
                for _ in range(rng.integers(1, 4)):
                    at = scene.spot(side, rng.uniform(0.35, 0.6), rng.uniform(0.55, 0.85))
                    axes, turn = (rng.uniform(0.3, 0.45), rng.uniform(0.06, 0.09)), rng.uniform(-0.5, 0.3)
                    scene.opacity += scene.blob(at, *axes, sign * turn) * (0.35 + 0.75 * s)
            else:
                u, y = scene.spot(side, 0.15, 0.5)
                beside = 0.08 + rng.uniform(0.35, 0.6) * (scene.y - y) - (scene.u - u) * sign
                wedge = ramp(beside, 0.1) * ramp(scene.y - y, 0.2) * scene.sides[side]
                scene.opacity += wedge * (0.25 + 0.6 * s)


def _spots(scene: Scene, rng: Rng, count: int, radii: tuple[float, float], density: float) -> None:
    for _ in range(count):
        radius, side = rng.uniform(*radii), int(rng.integers(2))
        at = scene.spot(side, rng.uniform(0.25, 0.85), rng.uniform(0.15, 0.75))
        scene.opacity += scene.disc(at, radius, edge=0.05 + 0.2 * radius) * density


def _pleura(scene: Scene, finding: str, rng: Rng, s: float) -> None:
    """Draw a finding between lung and chest wall."""
    lungs = scene.build.lungs
    match finding:
        case "Effusion":  # fluid in the costophrenic angle, rising towards the chest wall
            for side in _sides(rng, 0.3):
                depth = 0.04 + (0.75 if rng.random() < 0.25 else 0.38) * s
                bottom = float(lungs.bottom[side]) * scene.build.stretch[side]
                rise = (0.25 + 0.2 * s) * np.square(np.clip(scene.across, 0, 1.1) - 0.35)
                level = (bottom - 0.12 - depth * lungs.height * 0.5) - rise
                fluid = ramp(scene.y - level, 0.14) * scene.sides[side]
                scene.opacity += fluid * (0.8 + 0.3 * s)
                scene.vessels *= 1 - fluid
        case "Pneumothorax":  # a black, empty crescent beside a collapsed lung, with a thin white line
            side = int(rng.integers(2))
            here, down = scene.sides[side], scene.y - float(lungs.top[side])
            fade = np.clip(1 - down / ((0.45 + 0.55 * s) * lungs.height), 0, 1)
            border = (0.06 + 0.32 * s) * fade * np.clip(scene.across * 2.2 - 0.35, 0, 1)
            gap, near = scene.depth - border, here * (border > 0.03)
            outside = ramp(-gap, 0.05) * near
            scene.vessels *= 1 - outside
            scene.opacity -= outside * (0.12 + 0.35 * s)
            scene.opacity += here * ramp(gap, 0.3) * (0.15 * s)
            scene.extra += line(gap, 0.02 + 0.8 / scene.pixels) * near * scene.lung * (0.03 + 0.07 * s)
        case "Pleural_Thickening":  # a bright rim along part of the lateral chest wall
            for side in _sides(rng, 0.4):
                middle = scene.spot(side, 1.0, rng.uniform(0.25, 0.75))[1]
                along = np.sqrt(np.maximum(1 - np.square((scene.y - middle) / rng.uniform(0.4, 0.8)), 0))
                thick = (0.07 + 0.12 * s) * (1 + 0.4 * scene.cut("clouds", rng))
                lateral = scene.sides[side] * ramp(scene.across - 0.4, 0.2)
                rim = ramp(thick * along - scene.depth, 0.05) * (along > 0) * lateral
                scene.opacity += rim * (0.6 + 0.4 * s)
