"""Transforms: checked against the obvious loop, and random by name only."""

import pytest
import torch

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, Shift, Source, make_evaluation_transform, make_transform
from gapsl.data.transform import apply_shift, crop_flip, rotate, to_float


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def bytes_of(count=6, channels=3, height=16, width=16):
    return torch.randint(0, 256, (count, channels, height, width), generator=generator(), dtype=torch.uint8)


def a_source(augment="crop-flip", channels=3):
    samples = ArraySamples(bytes_of(channels=channels), torch.zeros(6, dtype=torch.int64))
    mean, std = (0.1, 0.2, 0.3, 0.4)[:channels], (0.5, 0.6, 0.7, 0.8)[:channels]
    return Source("ours", samples, samples, ("a",), mean, std, augment)


def test_bytes_become_the_unit_interval_and_floats_stay():
    assert to_float(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    assert to_float(torch.tensor([-3.0, 7.0], dtype=torch.float64)).tolist() == [-3, 7]


def test_raw_inputs_are_left_as_they_were():
    floats = torch.rand(2, 3, 16, 16)
    before = floats.clone()
    make_transform(a_source(), shift=Shift("noise", (0.5,)))(floats, 0, 0, 1)
    make_evaluation_transform(a_source())(floats)
    assert torch.equal(floats, before)


def test_evaluation_scales_and_normalises_each_channel():
    raw = bytes_of()
    seen = make_evaluation_transform(a_source())(raw)
    for channel, (mean, std) in enumerate([(0.1, 0.5), (0.2, 0.6), (0.3, 0.7)]):
        torch.testing.assert_close(seen[:, channel], (raw[:, channel].float() / 255 - mean) / std)


@pytest.mark.parametrize(("height", "width", "pad"), [(32, 32, 4), (8, 8, 1), (28, 20, 3), (4, 4, 0)])
def test_crop_and_flip_are_those_of_a_loop_over_images(height, width, pad):
    images = torch.rand(40, 3, height, width, generator=generator(1))
    result = crop_flip(images, generator(2))

    draws = generator(2)
    down, right = torch.randint(0, 2 * pad + 1, (2, 40), generator=draws).tolist()
    mirrored = (torch.rand(40, generator=draws) < 0.5).tolist()
    for i in range(40):
        padded = torch.zeros(3, height + 2 * pad, width + 2 * pad)
        padded[:, pad : pad + height, pad : pad + width] = images[i]
        crop = padded[:, down[i] : down[i] + height, right[i] : right[i] + width]
        assert torch.equal(result[i], crop.flip(-1) if mirrored[i] else crop)
    assert 5 < sum(mirrored) < 35


def test_augmentation_depends_on_its_name_alone():
    transform, raw = make_transform(a_source()), bytes_of()
    expected = transform(raw, 1, 2, 3, 0)
    torch.rand(7)
    assert torch.equal(transform(raw, 1, 2, 3, 0), expected)
    for name in [(9, 2, 3, 0), (1, 9, 3, 0), (1, 2, 9, 0), (1, 2, 3, 9)]:
        assert not torch.equal(transform(raw, *name), expected)


def test_without_augmentation_training_sees_what_evaluation_sees():
    raw = bytes_of()
    assert torch.equal(
        make_transform(a_source(), "none")(raw, 0, 0, 1), make_evaluation_transform(a_source())(raw)
    )


def test_the_source_says_which_augmentation_unless_the_user_does():
    assert make_transform(a_source("crop-flip")).augment == "crop-flip"
    assert make_transform(a_source("crop-flip"), "none").augment == "none"
    with pytest.raises(InputError, match="did you mean 'crop-flip'"):
        make_transform(a_source(), "cropflip")


def test_noise_has_the_std_it_was_given():
    images = torch.full((50, 3, 32, 32), 0.5)
    noise = apply_shift(images, Shift("noise", (0.3,)), generator()) - images
    assert float(noise.std()) == pytest.approx(0.3, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0, abs=0.01)


def test_noise_is_new_each_round_and_the_same_when_asked_again():
    transform, raw = make_transform(a_source(), "none", Shift("noise", (0.3,))), bytes_of()
    assert torch.equal(transform(raw, 0, 1, 5), transform(raw, 0, 1, 5))
    assert not torch.equal(transform(raw, 0, 1, 5), transform(raw, 0, 1, 6))


def test_colour_is_a_gain_and_an_offset_per_channel():
    shift = Shift("colour", (2.0, 3.0, 4.0, 0.1, 0.2, 0.3))
    ones = torch.ones(2, 3, 4, 4)
    assert apply_shift(ones, shift, generator())[0, :, 0, 0].tolist() == pytest.approx([2.1, 3.2, 4.3])
    assert apply_shift(ones[:, :1], shift, generator())[0, :, 0, 0].tolist() == pytest.approx([2.1])
    with pytest.raises(InputError, match="up to 3 channels"):
        apply_shift(torch.ones(1, 4, 4, 4), shift, generator())


def test_a_quarter_turn_is_a_quarter_turn_counter_clockwise():
    images = torch.rand(3, 2, 9, 9, generator=generator())
    torch.testing.assert_close(rotate(images, 90), torch.rot90(images, 1, (2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(rotate(images, -90), torch.rot90(images, -1, (2, 3)), atol=1e-5, rtol=0)


def test_half_a_turn_keeps_an_image_that_is_not_square():
    images = torch.rand(3, 2, 6, 10, generator=generator())
    torch.testing.assert_close(rotate(images, 180), images.flip(2, 3), atol=1e-5, rtol=0)


def test_a_rotation_keeps_lengths_off_a_square_too():
    # A dot 3 pixels right of the centre comes to lie 3 pixels above it, whatever the sides are.
    image = torch.zeros(1, 1, 11, 21)
    image[0, 0, 5, 13] = 1
    turned = rotate(image, 90)[0, 0]
    assert float(turned[2, 10]) == pytest.approx(1, abs=1e-4)


def test_a_shift_comes_before_normalisation():
    raw = bytes_of()
    colour = Shift("colour", (0.5, 0.5, 0.5, 0.25, 0.25, 0.25))
    seen = make_transform(a_source(), "none", colour)(raw, 0, 0, 1)
    torch.testing.assert_close(seen[:, 0], (raw[:, 0].float() / 255 * 0.5 + 0.25 - 0.1) / 0.5)
