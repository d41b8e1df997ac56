"""confluent-kafka: the clients on librdkafka."""

from consumer_idem.kafka.confluent_publisher import ConfluentPublisher as ConfluentPublisher
from consumer_idem.kafka.confluent_subscriber import ConfluentSubscriber as ConfluentSubscriber
