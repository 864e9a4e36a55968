// Package gnrs implements the name service: a [Server] that answers by UDP where names are, from a
// [Store] of records, and a [Client] that looks names up and writes its own.
//
// The messages are those of the original release (package gnrswire), whose hosts can look names up.
// Writes have to be records (package record) that the owner of the name has signed. The server
// refuses a write with a [Code] if it is unsigned, signed by another key, expired, or older than
// the stored record. It answers a write when the store has it durably.
//
// Requests are limited per source address ([Limits]), and writes in total. A source address may be
// forged, so new names and notifications are only for clients that return a cookie. An answer only
// goes to the address that the request came from, and a short request gets a short answer, so the
// server is of little use for flooding others.
//
// A [Cache] keeps answers, and is notified when they are no longer valid.
package gnrs
