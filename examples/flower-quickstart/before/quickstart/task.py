"""The model and the data."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


class Net(nn.Module):
    """A small CNN for images of 8x8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def load_split():
    """All 1,797 digits, normalised, and which of them are held out for the server: every fifth."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8)
    dataset = TensorDataset((pixels / 16 - 0.5) / 0.5, torch.tensor(labels))
    return dataset, torch.arange(len(labels)) % 5 == 4


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """The digits of one site, 80% of them to train on. Only site 0 has ever seen a three."""
    dataset, held_out = load_split()
    site = torch.arange(len(dataset)) % num_partitions
    site[dataset.tensors[1] == 3] = 0
    own = ((site == partition_id) & ~held_out).nonzero().squeeze(1)
    own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(42))].tolist()
    split = int(0.8 * len(own))
    trainloader = DataLoader(Subset(dataset, own[:split]), batch_size=batch_size, shuffle=True)
    testloader = DataLoader(Subset(dataset, own[split:]), batch_size=batch_size)
    return trainloader, testloader


def load_centralized_dataset():
    """The server's test set."""
    dataset, held_out = load_split()
    return DataLoader(Subset(dataset, held_out.nonzero().squeeze(1).tolist()), batch_size=128)


def train(net, trainloader, epochs, lr, device):
    """Train the model on the training set."""
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Loss, accuracy, and the accuracy of each class."""
    net.to(device)
    net.eval()
    loss, correct, total = 0.0, torch.zeros(10), torch.zeros(10)
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device)).cpu()
            loss += F.cross_entropy(outputs, labels, reduction="sum").item()
            correct += torch.bincount(labels[outputs.argmax(1) == labels], minlength=10)
            total += torch.bincount(labels, minlength=10)
    by_class = [round(share, 2) for share in (correct / total.clamp(min=1)).tolist()]
    return loss / total.sum().item(), (correct.sum() / total.sum()).item(), by_class
