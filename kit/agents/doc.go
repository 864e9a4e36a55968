// Package agents keeps the agents of a service: which agents there are, whether they are alive,
// where they are in the network, how much they carry, and which agent to choose.
//
//   - A [Registry] follows the agents that operators add or that announce themselves, and
//     serves them by REST.
//   - An [Agent] is one of them, and a [State] is what is known of it at one time.
//   - [Nearest] chooses an agent, and [Together] sends requests to several at once.
//
// The service defines what its agents do: its client embeds a *control.Client and adds the
// service's own operations. Package control is the agent's side. Start reading at Options in
// registry.go.
package agents
