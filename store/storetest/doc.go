// Package storetest has the conformance test for implementations of store.Store.
package storetest
