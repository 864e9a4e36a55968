// Package namespace makes, removes and enters named network namespaces.
package namespace
