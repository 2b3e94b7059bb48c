"""Drawing of a phantom: a radiograph-like frontal chest image of a row of NIH's table.

The patient decides the lungs and the habitus, the image position, exposure and noise, and each finding
is drawn from its own random stream: leaving a finding out changes nothing else.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.phantom_findings import DRAWN, reshape, severity
from cxrbench.datasets.phantom_scene import (
    Build,
    Rng,
    Scene,
    length,
    line,
    ramp,
    read_lungs,
    sample,
    textures,
    wave,
)

# The heart from the great vessels down: heights of the lungs, and |u| of its borders there.
HEART_HEIGHTS = (0.25, 0.38, 0.46, 0.58, 0.7, 0.8, 0.88, 0.95, 1.02)
HEART_LEFT = (0.05, 0.17, 0.25, 0.34, 0.45, 0.525, 0.54, 0.50, 0.36)
HEART_RIGHT = (0.03, 0.12, 0.17, 0.24, 0.275, 0.265, 0.22, 0.13, 0.08)


def prepare(pixels: int) -> None:
    """Make what all drawings of a size share."""
    read_lungs()
    textures(pixels)


def draw_rows(rows: pd.DataFrame, pixels: int, seed: int) -> np.ndarray:
    """Draw a phantom per row, (rows, pixels, pixels) uint8."""
    return np.stack([_draw(row, pixels, seed) for row in rows.to_dict("records")])


def _stream(*parts: object) -> Rng:
    """A random stream that depends on these words only, on every machine."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def _draw(row: dict[Any, Any], pixels: int, seed: int) -> np.ndarray:
    rng, ap = _stream(seed, row["image"]), row["view"] == "AP"
    build = _build(row, seed, rng, ap)
    streams = [(name, _stream(seed, row["image"], name)) for name in FINDINGS if row[name]]
    drawn = [(name, own, severity(own)) for name, own in streams]
    for name, own, s in drawn:
        reshape(build, name, own, s)
    scene = Scene(build, pixels, rng, ap)
    for name, own, s in drawn:
        if name in DRAWN:
            DRAWN[name](scene, own, s)
    return _film(_body(scene, rng, ap), scene, rng, ap)


def _build(row: dict[Any, Any], seed: int, rng: Rng, ap: bool) -> Build:
    """The habitus of the patient, as it is breathed and exposed on this image."""
    own, masks = _stream(seed, "patient", row["patient"]), read_lungs()
    fat = own.random()
    build = Build(
        lungs=masks[own.integers(len(masks))],
        heart=own.uniform(0.93, 1.07),
        fat=fat,
        arms=own.random() < 0.5,
        ribs=(own.random(), own.uniform(0.095, 0.115), own.uniform(0.30, 0.44)),
        clavicle=own.uniform(0.10, 0.2),
        breasts=own.uniform(0.04, 0.12) * (row["sex"] == "F"),
    )
    build.heart = build.heart * rng.uniform(0.97, 1.03) * (1.10 if ap else 1.0)
    inspired = rng.uniform(0.84, 0.98) if ap else rng.uniform(0.94, 1.04)
    build.stretch = [inspired * rng.uniform(0.97, 1.03) for _ in range(2)]
    build.air = rng.uniform(0.88, 1.08)
    build.vessels = rng.uniform(0.7, 1.2)
    return build


def _body(scene: Scene, rng: Rng, ap: bool) -> np.ndarray:
    """Brightness of the whole patient."""
    v = scene.y / scene.build.lungs.height
    light, inside = _trunk(scene, v)
    air = scene.lung * np.maximum(1 - scene.opacity, -0.1)
    centre, heart = _mediastinum(scene, v)
    hollow = 0.37 * scene.build.air * (0.72 + 0.5 * np.clip(scene.depth, 0, 0.55))
    light -= hollow * air * (1 - 0.72 * heart) * (1 - 0.85 * centre)
    light += (0.07 * heart + 0.09 * centre) * (1 - 0.5 * ramp(v - 0.9, 0.3))
    light += _vessels(scene, rng) * air * (1 - 0.7 * heart)
    light += _bones(scene, v) * inside
    light += _below(scene, v, rng) * inside
    light += scene.extra * inside
    if ap or rng.random() < 0.08:
        light += _lines(scene, v, rng)
    return light


def _trunk(scene: Scene, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Soft tissue of neck, shoulders, trunk and arms: brightness, and 1 inside the patient to 0 outside."""
    a, chest = scene.across, 1.12 + 0.12 * scene.build.fat
    heights = (-0.6, -0.26, -0.17, -0.07, 0.02, 0.12, 0.3, 0.55, 0.8, 1.1, 1.5)
    widths = (0.40, 0.43, 0.62, 1.15, 1.42, 1.55, 1.40, chest + 0.07, chest, chest + 0.04, chest + 0.12)
    half = np.interp(v[:, :1], heights, widths).astype("f4")  # rotation is small: one width per picture row
    inside = ramp(half - a, 0.10)
    round_ = np.sqrt(np.maximum(1 - np.square(a / half), 0))
    light = inside * (0.22 + 0.04 * scene.build.fat + 0.36 * round_)
    if scene.build.arms:
        lean = 1.42 + 0.16 * v
        arm = ramp(0.25 - np.abs(a - lean), 0.12) * ramp(v - 0.12, 0.2)
        light += arm * (1 - inside) * 0.36 + line(a - lean, 0.1) * arm * 0.14
        inside = np.maximum(inside, arm)
    return light, inside


def _mediastinum(scene: Scene, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much the great vessels with the spine, and the heart, cover of each pixel (0 to 1)."""
    build, h = scene.build, scene.build.lungs.height
    u = scene.u - build.shift * np.clip(v * 3, 0, 1)  # the neck stays where it is
    wide = 0.15 + 0.05 * np.clip(0.5 - v, 0, 0.5) + 0.08 * ramp(v - 0.36, 0.3)
    knob = scene.disc((build.shift + 0.17, 0.24 * h), 0.13 * build.heart**0.5)
    centre = np.maximum(ramp(wide - np.abs(u), 0.09), knob * 0.8)
    scale = (build.stretch[0] + build.stretch[1]) / 2
    size = np.interp(v[:, :1], (0.35, 0.65), (1, build.heart))
    right = np.interp(v[:, :1] / scale, HEART_HEIGHTS, HEART_RIGHT) * size
    left = np.interp(v[:, :1] / scale, HEART_HEIGHTS, HEART_LEFT) * size
    soft = 0.06 + 1.5 / scene.pixels
    heart = ramp(u + right.astype("f4"), soft) * ramp(left.astype("f4") - u, soft)
    return centre, heart * ramp(1.02 * scale - v, 0.1)


def _vessels(scene: Scene, rng: Rng) -> np.ndarray:
    """Hila and the branches that run from them, thinning towards the pleura."""
    away, down = scene.across - 0.2, scene.y - 0.47 * scene.build.lungs.height
    radius = length(away, down)
    turn = down / (np.abs(away) + np.abs(down) + 1e-6)  # in place of an angle, and cheaper
    turn = np.clip(turn + 0.1 * scene.cut("clouds", rng), -1, 1)  # branches bend
    tile = textures(scene.pixels)["vessels"]
    half = len(tile) / 2 - 2
    rows = (turn + 1) * (half / 2) + scene.by_side(*rng.integers(int(half), size=2))
    branch = sample(tile, rows, np.minimum(radius * 150, half) + np.float32(rng.integers(int(half))))
    fade = np.clip(1 - radius, 0.04, 1) * np.clip(radius * 4, 0.2, 1)
    hila = line(length(away, down * 0.55), 0.26)
    seen = (0.14 * scene.build.vessels) * branch * fade * scene.vessels
    return seen + 0.16 * hila * (0.55 + 0.6 * scene.vessels * branch)


def _bones(scene: Scene, v: np.ndarray) -> np.ndarray:
    """Ribs, clavicles, spine and the heads of the arms."""
    a = scene.across
    offset, spacing, slope = scene.build.ribs
    behind = v + 0.14 * a - slope * a * a
    before = v - 0.30 + 0.42 * a * a
    ribs = np.clip(1.6 * wave(behind * (1 / spacing) + offset), -0.5, 1)
    ribs += 0.4 * np.maximum(wave(before * (1 / spacing * 0.9)), 0) * np.clip(a * 2 - 0.8, 0, 1)
    light = 0.042 * ribs * ramp(scene.depth + 0.05, 0.10) * np.clip(a * 5 - 0.6, 0, 1)
    course = v - scene.build.clavicle + 0.17 * a - 0.27 * a * (1 - a) * (1 - 0.6 * a)
    bone = ramp(0.024 - np.abs(course), 0.025) + line(np.abs(course) - 0.022, 0.012)
    light += 0.065 * bone * ramp(1.15 - a, 0.1) * ramp(a - 0.12, 0.06)
    disc = 0.75 + 0.25 * wave(v[:, :1] * (1 / 0.085))
    light += 0.07 * ramp(0.11 - a, 0.06) * disc
    light -= 0.10 * ramp(0.055 - a, 0.05) * ramp(0.33 - v, 0.08)  # trachea
    light += 0.06 * ramp(0.15 - length(a - 1.3, scene.y - 0.2), 0.10)  # shoulder
    blade = length(a - 1.42, (scene.y - 0.5) * 0.8)
    return light + 0.05 * ramp(0.48 - blade, 0.06) * ramp(0.62 - v, 0.4)


def _below(scene: Scene, v: np.ndarray, rng: Rng) -> np.ndarray:
    """Belly, breasts, and gas in the stomach."""
    a, build, h = scene.across, scene.build, scene.build.lungs.height
    light = 0.20 * ramp(v - 0.88, 0.4) * ramp(1.12 + 0.12 * build.fat - a, 0.5)
    if build.breasts:
        reach = length(a - 0.62, (scene.y - 0.78 * h) * 1.1)
        light += build.breasts * ramp(0.48 - reach, 0.22)
    gas, at = rng.random(), (rng.uniform(0.35, 0.6), h * rng.uniform(1.02, 1.1))
    if gas < 0.45:
        light -= scene.blob(at, 0.25, 0.13) * (0.4 * gas + 0.06) * (1 - scene.lung)
    return light


def _lines(scene: Scene, v: np.ndarray, rng: Rng) -> np.ndarray:
    """Tubes and wires of a patient in bed: airway tube, central line, leads on the skin."""
    width = 0.014 + 0.8 / (scene.pixels * 0.36)
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


def _film(light: np.ndarray, scene: Scene, rng: Rng, ap: bool) -> np.ndarray:
    """Exposure, scatter, noise, vignette, collimation and rounding to uint8."""
    n = scene.pixels
    light += (0.035 if ap else 0.02) * scene.cut("clouds", rng)
    light += 0.010 * scene.cut("wisps", rng)
    contrast, lift = rng.uniform(0.95, 1.25), rng.uniform(-0.05, 0.06)
    light = np.clip((light - 0.42) * contrast + (0.45 + lift), 0, None)
    light *= 1.03 - 0.05 * light  # shoulder of the film's curve
    light += scene.cut("grain", rng) * (0.012 * (1.4 if ap else 1.0))
    axis = np.linspace(-1, 1, n, dtype="f4")
    light *= 1 - rng.uniform(0.04, 0.12) * np.square(axis)[:, None] - 0.06 * np.square(axis)[None, :]
    _mark(light, rng)
    edges = np.where(rng.random(4) < 0.3, rng.uniform(0, 0.05, 4), 0) * n  # that the beam did not reach
    top, bottom, left, right = edges.astype(int)
    for dark in (light[:top], light[n - bottom :], light[:, :left], light[:, n - right :]):
        dark *= 0.1
    return (np.clip(light, 0, 1) * 255 + 0.5).astype(np.uint8)


def _mark(light: np.ndarray, rng: Rng) -> None:
    """The lead letter L in the corner above the patient's left shoulder."""
    n = len(light)
    row, column, size = int(n * rng.uniform(0.04, 0.14)), int(n * rng.uniform(0.86, 0.92)), max(2, n // 26)
    stem = max(1, size // 4)
    light[row : row + size, column : column + stem] += 0.35
    light[row + size - stem : row + size, column + stem : column + stem + size // 2] += 0.35
