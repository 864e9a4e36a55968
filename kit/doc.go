// Package kit holds the building blocks that the controller's services share.
//
//   - A [Collection] keeps the items that operators declare in the configuration file or through
//     the API. It checks, stores and watches them, so that several writers agree.
//   - A [Reconciler] is a collection whose items are rules in the network.
//   - [Flows] writes rules for flows when their first packet arrives.
//   - A [Resource] serves a collection by REST: list by pages, show, add, replace and remove, with
//     entity tags.
//   - A [REST] registers a service's other operations, and [Problem] turns errors into answers.
//   - [Faults] lists all wrong fields of an input at once.
//   - A [Loop] repeats work when it is woken, and at an interval.
//
// Start reading at [Kind] in collection.go. The smallest service is examples/quarantine.
package kit
