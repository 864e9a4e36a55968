// Package tables tests services two by two on fake flow tables: random programs of both, as
// the services make them, go through the ledger into the tables of some switches, and random
// packets through the tables from switch to switch. What becomes of each is compared, at each
// switch, with what the declarations and the table of decisions (decisions_test.go, which is
// that of docs/topics/pipeline.md) say.
package tables
