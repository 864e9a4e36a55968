// Package record defines the [Record] with which the owner of a name publishes where the name is.
//
// A name is the hash of a public key ([NameOf]); only the owner of the private key can sign its
// records. Each record has a number that is higher than the one before, and an expiry time.
// [Record.Verify] detects a record that is forged or of another name. A replayed older record is
// detected by its number as long as the newer one is remembered: at least for [MaxValidity], after
// which every older record has expired. The clocks of signer and verifier may differ by [MaxSkew].
//
// [Record.Into] and [FromMessage] carry records in messages of package gnrswire, in options that
// servers and hosts of the original release ignore. [Record.AppendTo] and [Parse] encode them for
// stores.
package record
