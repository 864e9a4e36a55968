// Package kit is what every service of the controller stands on.
//
//   - A [Collection] keeps what operators declare: checked, stored, watched, so that several
//     writers agree; from the configuration file as well as by the API.
//   - A [Reconciler] is a collection whose items are rules in the network.
//   - [Flows] are what traffic brings: rules that are written when a first packet has come.
//   - A [Resource] serves one by REST: list by pages, show, add, replace and remove, with
//     entity tags.
//   - A [REST] registers a service's other operations, and [Problem] answers for what fails.
//   - [Faults] is what is wrong with an input, everything at once.
//   - A [Loop] repeats work when it is woken, and from time to time.
//
// Start reading at Kind in collection.go; examples/quarantine is the smallest service.
package kit
