// Package memstore is a store.Store that keeps its entries in memory only.
package memstore
