// Package client is a client of a controller's REST API. It authenticates, reads problem
// documents and follows the event stream. Its callers know the paths.
package client
