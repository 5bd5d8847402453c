package net

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go -type edge_key -type edge -type begun -type listener_key -type listener -type pair_key -type datagram_edge -type edge_packets -type packet_hook -type packet_sample -type packet_drop_key -type packet_drop -type packet_drop_limit -type proxy -type transaction -type owner_use -type owner_drops -type flow_use -type table_index -type edge_role -type transport -type protocol -type status -type cpu_architecture -type quota -type lru_table -type packet_direction -type edge_drop -type endpoint_drop edges ../../../bpf/net/edges.bpf.c
//go:generate bpf2go datagrams ../../../bpf/net/datagrams.bpf.c
//go:generate bpf2go tls ../../../bpf/net/tls.bpf.c
