"""What can go wrong with the Hugging Face Hub, told as what happened, why, and what to do next."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from engine.session import EngineError


@contextmanager
def told_errors(repository: str) -> Iterator[None]:
    """Turn what huggingface_hub and the file system raise into EngineError."""
    from huggingface_hub import errors
    from huggingface_hub.utils import httpx

    try:
        yield
    except (errors.HFValidationError, errors.RevisionNotFoundError) as error:
        raise not_a_name(repository) from error
    except errors.OfflineModeIsEnabled as error:
        raise EngineError(
            "The Hugging Face Hub was not asked.",
            "The variable HF_HUB_OFFLINE switches it off.",
            "Unset it and start the program again.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _refused(repository, error) from error
    except (httpx.HTTPError, httpx.InvalidURL, errors.FileMetadataError) as error:
        raise _unreachable(error) from error
    except errors.LocalEntryNotFoundError as error:  # how a lost network shows in the last step
        raise _unreachable(error) from error
    except OSError as error:
        raise _not_written(error) from error


def not_a_name(repository: str) -> EngineError:
    """The error for a text that names no repository."""
    return EngineError(
        f"“{repository[:80]}” is not the name of a model on the Hub.",
        "A name has two parts, as in HuggingFaceTB/SmolLM2-135M-Instruct.",
        "Copy it from the model's page.",
    )


def gigabytes(num_bytes: int) -> str:
    """Bytes as they stand in these sentences."""
    return f"{num_bytes / 1e9:,.2f} GB"


def _refused(repository: str, error: Exception) -> EngineError:
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return EngineError(
            f"{repository} is given only to those whom its makers let in.",
            "The Hub answered that access was not granted, or that no token was sent.",
            "Accept the terms on the model's page, then enter an access token of your account.",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return EngineError(
            f"There is no model {repository} that you may see.",
            "The name is wrong, or the model is private.",
            "Check the name; a private model needs an access token.",
        )
    if status in (401, 403):
        return EngineError(
            f"The Hub refused {repository}.",
            f"It answered {status}: the access token is wrong, expired, or not for this model.",
            "Enter another token, or none for a public model.",
        )
    if status == 404:
        return EngineError(
            f"A file of {repository} was not found.",
            "It may have been renamed or removed a moment ago.",
            "Look the model up again.",
        )
    return EngineError(
        f"The Hub could not serve {repository}.",
        f"It answered {status}.",
        "Try again in a few minutes; what was downloaded is kept.",
    )


def _unreachable(error: Exception) -> EngineError:
    words = str(error).strip().splitlines()
    return EngineError(
        "The Hugging Face Hub cannot be reached.",
        f"{type(error).__name__}: {words[0][:160].rstrip('.') if words else 'no answer'}.",
        "Check the network, a proxy and HF_ENDPOINT, then try again; what was downloaded is kept.",
    )


def _not_written(error: OSError) -> EngineError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EngineError(
            "The disk is full.",
            "The rest of the download found no room.",
            "Free some space, then download again: it goes on where it stopped.",
        )
    return EngineError(
        "The download could not be written.",
        f"{error.strerror or error}.",
        "Check the permissions of the Hugging Face cache folder, then try again.",
    )
