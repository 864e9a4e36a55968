// Package memstore is a store.Store that lives in memory only.
package memstore
