// Package controller puts a controller together from its configuration: the
// store, the event bus, the network, the services and the API, and runs them
// until it is told to stop. The list of services stands in services.go.
package controller
