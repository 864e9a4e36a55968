// Package client talks to a controller's REST API. It knows how to
// authenticate, how to read problem documents and how to follow the event
// stream; what the paths mean is for its callers.
package client
