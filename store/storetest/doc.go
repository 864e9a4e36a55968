// Package storetest holds the conformance test that every implementation of
// store.Store passes.
package storetest
