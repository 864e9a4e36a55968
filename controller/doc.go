// Package controller makes a controller from its configuration: the store, the event bus, the
// network, the services and the API. It runs them until it is told to stop. Start reading at New in
// controller.go.
package controller
