// Package packetsocket sends and receives whole frames on network interfaces by Linux packet
// sockets (packet(7)), past the kernel's IP stack.
//
// [Open] opens a socket on one interface or on all of them. A socket receives a frame before a
// datapath, such as that of Open vSwitch, takes the frame away. It needs no address on the interface.
// [Options] select the frames that are received, and how many of them one system call handles:
//
//   - [Socket.Send] and [Socket.Receive] handle one frame, for protocols such as DHCP and ARP.
//   - [Socket.SendBatch] and [Socket.ReceiveBatch] handle up to Options.Batch frames with one
//     system call (sendmmsg, recvmmsg) and without copying, for data paths.
//
// Opening a socket requires CAP_NET_RAW in the user namespace of the network namespace.
package packetsocket
