// Package agents keeps the agents of a service: which there are, whether they live, where
// they stand in the network, what they carry, and which of them is to be chosen.
//
//   - A [Registry] follows the agents that operators add or that announce themselves, and
//     serves them by REST.
//   - An [Agent] is one of them, its [State] what is known of it now.
//   - [Nearest] chooses, [Together] asks several at once.
//
// What agents do is the service's: its client of them embeds a *control.Client and adds the
// service's own operations. Package control is the agent's side. Start reading at Options in
// registry.go.
package agents
