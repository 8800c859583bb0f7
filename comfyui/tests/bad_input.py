"""Bad input of every kind: one clear error of the node, and the server keeps running."""
import media
import prompts
from comfy_server import Refused

IMAGES = ("nan", "two channels", "five channels", "no batch axis", "no frames", "no pixels", "complex", "no tensor")


def fails(proof, prompt):
    """The error of a prompt that must fail."""
    outcome = proof.comfy.run(prompt)
    assert outcome.status == "error", f"{prompt} ended with {outcome.status}"
    error = outcome.error()
    assert error and "internal error" not in error and "Traceback" not in error, error
    assert error.count("\n") == 0, f"more than one line: {error}"
    return error


def still_runs(proof):
    """Whether the server still works."""
    proof.succeed(prompts.upscale_images("still runs", prompts.model(), prompts.clip(count=1)))


def bad_inputs(proof):
    """Images, latents, videos, models and devices that cannot be used."""
    errors = {}
    for kind in IMAGES:
        clip = prompts.clip(kind=kind)
        errors[kind] = fails(proof, prompts.upscale_images("bad", prompts.model(), clip))
        fails(proof, prompts.vae_round_trip("bad", prompts.model(), clip))
    latent = prompts.vae_round_trip("bad", prompts.model(), prompts.clip(kind="no frames"))
    latent["4"]["inputs"]["latent"] = ["2", 1]
    errors["latent"] = fails(proof, latent)

    (proof.base / "input/broken.mp4").write_bytes(b"\0" * 4096)
    media.make_video(proof.base / "input/bad.mp4", 3)
    errors["broken video"] = fails(proof, prompts.upscale_video("broken.mp4", prompts.model(), "video/bad"))
    errors["codec"] = fails(proof, prompts.upscale_video("bad.mp4", prompts.model(), "video/bad", codec="ffv1"))

    for name in ("nowhere.safetensors", "7b-q4"):
        model = prompts.model(name)
        errors[f"model {name}"] = fails(proof, prompts.upscale_images("bad", model, prompts.clip()))
    garbage = proof.base / "models/diffusion_models/seedvr2_garbage.safetensors"
    garbage.write_bytes(b"garbage" * 1000)
    model = prompts.model(garbage.name)
    errors["garbage model"] = fails(proof, prompts.upscale_images("bad", model, prompts.clip()))
    model = prompts.model("formula:tiny", device="cuda:0")
    errors["no GPU"] = fails(proof, prompts.upscale_images("bad", model, prompts.clip()))
    still_runs(proof)
    for kind, error in errors.items():
        print(f"      {kind}: {error}", flush=True)
    return f"{len(errors)} kinds, one clear error each, and the server keeps running"


def bad_prompts(proof):
    """Prompts that the server refuses, or that are out of range."""
    good = prompts.upscale_images("bad", prompts.model(), prompts.clip())
    cases = {
        "scale out of range": ("3", "scale", 1000.0),
        "batch of 0": ("3", "batch_size", 0),
        "unknown colour": ("3", "color", "sepia"),
        "text for a number": ("3", "seed", "many"),
        "no model": ("3", "model", None),
    }
    for name, (node, key, value) in cases.items():
        prompt = {number: {**each, "inputs": dict(each["inputs"])} for number, each in good.items()}
        prompt[node]["inputs"][key] = value
        if value is None:
            del prompt[node]["inputs"][key]
        try:
            proof.comfy.queue(prompt)
        except Refused as refused:
            assert refused.status == 400, f"{name}: {refused}"
        else:
            raise AssertionError(f"{name}: accepted")
    still_runs(proof)
    return f"{len(cases)} prompts refused with HTTP 400, and the server keeps running"
