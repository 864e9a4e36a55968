// Package record is what says where a name is: a [Record], which the name's owner has signed.
//
// A name is the hash of a key ([NameOf]): whoever has the private key to it, and nobody else, says
// where the name is. Each record has a number that is higher than the one before, and a time until
// which it holds. So one that is forged, or is of another name, is found out by [Record.Verify]; one
// that is sent again, after a newer one, by its number, for as long as the newer one is remembered:
// [MaxValidity] at least, after which no record from before it holds. That rests on clocks: those of
// who signs and of who accepts may differ by [MaxSkew].
//
// [Record.Message] and [FromMessage] carry records in messages of package gnrswire, in options that
// servers and hosts of the original release do not look at. [Record.AppendTo] and [Parse] are for
// stores.
package record
