"""Plain NumPy twin of `tightrope.kernels.stream`."""

import numpy as np


def roll_stream(
    state,
    phase,
    actions,
    cumulative_policy,
    start,
    stop,
    indices,
    cumulative,
    pays,
    consumes,
    bernoulli,
    uniforms,
    visits_left,
    ahead,
    features,
    inverse,
    ratio,
    states_out,
    actions_out,
    rewards_out,
    costs_out,
):
    """See the compiled kernel."""
    period = len(actions) or len(cumulative_policy)
    num_actions = len(stop) // actions.shape[1] if actions.size else cumulative_policy.shape[2]
    states_out[0] = state
    for t, (for_action, for_state, *for_payment) in enumerate(uniforms):
        if actions.size:
            action = actions[phase, state]
        else:
            action = np.searchsorted(cumulative_policy[phase, state], for_action, side="right")
        if ahead and visits_left[state, action] <= 0:
            return t, True
        row = state * num_actions + action
        place = start[row] + np.searchsorted(
            cumulative[start[row] : stop[row]], for_state, side="right"
        )
        actions_out[t] = action
        rewards_out[t], costs_out[t] = pays[place], consumes[:, place]
        if bernoulli:
            rewards_out[t] = for_payment[0] < pays[place]
            costs_out[t] = for_payment[1:] < consumes[:, place]
        stopped = False
        if visits_left.size:
            visits_left[state, action] -= 1
            stopped = not ahead and visits_left[state, action] <= 0
        if inverse.size:
            phi = features[state, action]
            width = phi @ inverse @ phi
            inverse -= np.outer(inverse @ phi, inverse @ phi) / (1.0 + width)
            ratio *= 1.0 + width
            stopped = stopped or ratio[0] >= 2.0 * (1.0 - 1e-12)
        state = indices[place]
        states_out[t + 1] = state
        phase = (phase + 1) % period
        if stopped:
            return t + 1, True
    return len(uniforms), False
