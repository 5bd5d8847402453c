package network

import "strconv"

// kafkaRequests are the names of Kafka's requests by their key in the protocol; the kernel tells
// the key alone.
var kafkaRequests = [...]string{
	"Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown",
	"OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
	"DescribeGroups",
	"ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId",
	"OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit",
	"DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs",
	"DescribeLogDirs",
	"SaslAuthenticate", "CreatePartitions", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
	"DescribeDelegationToken", "DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs", "AlterPartitionReassignments",
	"ListPartitionReassignments", "OffsetDelete", "DescribeClientQuotas", "AlterClientQuotas",
	"DescribeUserScramCredentials",
	"AlterUserScramCredentials", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "AlterPartition",
	"UpdateFeatures", "Envelope", "FetchSnapshot", "DescribeCluster", "DescribeProducers", "BrokerRegistration",
	"BrokerHeartbeat", "UnregisterBroker", "DescribeTransactions", "ListTransactions", "AllocateProducerIds",
	"ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
}

// kafkaRequest is the name of the request with a key, and the key itself where it has none.
func kafkaRequest(key string) string {
	if n, err := strconv.Atoi(key); err == nil && n >= 0 && n < len(kafkaRequests) {
		return kafkaRequests[n]
	}
	return key
}
