// Package namespace creates, removes and enters named network namespaces.
package namespace
