// Package rtmp implements the server's side of RTMP (Adobe's RTMP specification 1.0) for clients
// that publish a stream. It has no playback, no encryption, and no goroutines. The caller sets
// the deadlines of the connection.
//
// Clients are assumed to be hostile. What a connection may make the server keep is bounded, and
// is much less before the client has been permitted to publish.
package rtmp
