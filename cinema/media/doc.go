// Package media is what Cinema's gateways know of the house format: H.264 of the constrained
// baseline profile in RTP (RFC 6184, packetization mode 1) and Opus in RTP (RFC 7587), both
// and their sender reports in one flow of UDP datagrams for each channel.
//
// [Parse] reads one datagram. A [Cache] keeps what has come since the last key frame, so that
// a new viewer need not wait for the next one.
//
// A [Splicer] makes one stream, for one viewer, of channels that follow each other.
//
// Nothing here opens a socket or reads a clock: who calls says what time it is.
package media
